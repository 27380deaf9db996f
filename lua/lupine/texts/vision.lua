--- Texts of torchvision's models and blocks.
return { { "torchvision.models", [[
ResNet: Residual networks: blocks, layers and widths say which.
VGG: Networks of 3x3 convolutions, with batch normalisation or without.
MobileNetV2: Networks of inverted residual blocks with linear bottlenecks.
MobileNetV3: MobileNetV2 with squeeze-and-excitation and hardswish.
EfficientNet: Networks of inverted residual blocks, scaled in depth, width and resolution.
ConvNeXt: Residual networks of depthwise 7x7 convolutions and layer normalisation.
VisionTransformer: A transformer's encoder over patches of pictures.
resnet18 resnet34 resnet50 resnet101 resnet152: The residual network of so many layers: (N, 3, H, W)
  to scores (N, num_classes). Weights are drawn, or read by load_state_dict; none are downloaded.
resnext50_32x4d resnext101_32x8d resnext101_64x4d: The residual network with so many groups of so
  many channels.
wide_resnet50_2 wide_resnet101_2: The residual network with blocks twice as wide inside.
vgg11 vgg13 vgg16 vgg19: The VGG network of so many layers.
vgg11_bn vgg13_bn vgg16_bn vgg19_bn: The VGG network of so many layers with batch normalisation.
mobilenet_v2: MobileNetV2 of width 1.
mobilenet_v3_small mobilenet_v3_large: MobileNetV3 of that size.
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5
  efficientnet_b6 efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l: The
  EfficientNet of that size.
convnext_tiny convnext_small convnext_base convnext_large: The ConvNeXt of that size.
vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14: The vision transformer of that size (base, large,
  huge) over patches of so many pixels.
]] }, { "torchvision.ops", [[
Conv2dNormActivation: Convolution, normalisation and activation of pictures, one after the other.
Conv3dNormActivation: Convolution, normalisation and activation of volumes, one after the other.
MLP: Linear layers with activation, normalisation and dropout between.
Permute: Dimensions in another order, as a module.
SqueezeExcitation: Channels weighed by what two layers make of their means.
StochasticDepth: In training whole branches 0 with probability p, by batch or by row.
]] }, { "lupine.transforms", [[
RandomVerticalFlip: Turned upside down with probability p.
]] } }
